"""Wraps functions of any kind in a block that begins before each run, and ends or fails after it."""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Protocol, TypeAlias, TypeVar, cast

from agent_layer.errors import BadInputError
from tracer.core.errors import add_failure_note
from tracer.core.scope import Scope, current_scope, enter_scope


class _Method(Protocol):
    """A ``classmethod`` or ``staticmethod`` inside the body of its class."""

    @property
    def __func__(self) -> Callable[..., object]: ...


Decorable: TypeAlias = Callable[..., object] | _Method
F = TypeVar("F", bound=Decorable)


class Block(Protocol):
    """Recording of one run of a function."""

    @property
    def scope(self) -> Scope | None:
        """Scope in which the function runs; None outside rollouts."""
        ...

    def end(self, output: object) -> None:
        """Record the returned value; for a generator, the list of its items."""
        ...

    def fail(self, error: BaseException) -> None:
        """Record that the function raised this error, or was abandoned."""
        ...


class _UnrecordedBlock:
    """Block of a run outside rollouts: records nothing."""

    scope = None

    def end(self, output: object) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass


_OUTSIDE = _UnrecordedBlock()

BeginBlock = Callable[[Scope, dict[str, object]], Block]
"""Begins a block. Takes the outer scope and the arguments of the function by name."""


def function_name(function: Decorable) -> str:
    """Return the name of a function.

    Raises: BadInputError: this is an object other than a function, such as a tool of a framework.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return function_name(cast("_Method", function).__func__)
    if inspect.isroutine(function):
        return function.__name__
    raise BadInputError(
        f"tracer decorator: expected a function, found {type(function).__name__};"
        " put the tracer's decorator below the framework's, next to 'def'"
    )


def wrap(function: F, begin: BeginBlock) -> F:
    """Return a function of the same type that runs each call inside a rollout in a block."""
    if isinstance(function, (classmethod, staticmethod)):
        method = cast("_Method", function)
        kind = cast("Callable[[Callable[..., object]], F]", type(method))
        return kind(wrap(method.__func__, begin))
    plain = cast("Callable[..., object]", function)
    begin_run = partial(_begin, _read_signature(plain), begin)
    surround = next((surround for test, surround in _SURROUNDINGS if test(plain)), _surround_function)
    return cast("F", wraps(plain)(surround(plain, begin_run)))


def _read_signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:  # some functions written in C
        raise BadInputError(
            f"tracer decorator: expected a function with a readable signature, found {function!r};"
            " decorate a function of your own that calls it"
        ) from error


def _begin(
    signature: inspect.Signature, begin: BeginBlock, args: tuple[object, ...], kwargs: dict[str, object]
) -> Block:
    scope = current_scope()
    if scope is None:
        return _OUTSIDE
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:  # wrong arguments: the function itself raises the better error
        arguments = {"args": args, **kwargs}
    return begin(scope, {name: value for name, value in arguments.items() if name not in ("self", "cls")})


BeginRun = Callable[[tuple[object, ...], dict[str, object]], Block]


@contextmanager
def _watch(block: Block) -> Generator[None]:
    try:
        yield
    except BaseException as error:
        with add_failure_note(error, "what failed could not be recorded"):
            block.fail(error)
        raise


def _surround_function(function: Callable[..., object], begin: BeginRun) -> Callable[..., object]:
    def run(*args: object, **kwargs: object) -> object:
        block = begin(args, kwargs)
        with _watch(block), enter_scope(block.scope):
            output = function(*args, **kwargs)
        if inspect.iscoroutine(output) and block is not _OUTSIDE:
            return _run_coroutine(output, block)
        block.end(output)
        return output

    return run


def _surround_coroutine(
    function: Callable[..., Coroutine[object, object, object]], begin: BeginRun
) -> Callable[..., object]:
    async def run(*args: object, **kwargs: object) -> object:
        block = begin(args, kwargs)
        with _watch(block), enter_scope(block.scope):
            output = await function(*args, **kwargs)
        block.end(output)
        return output

    return run


async def _run_coroutine(coroutine: Coroutine[object, object, object], block: Block) -> object:
    with _watch(block), enter_scope(block.scope):
        output = await coroutine
    block.end(output)
    return output


def _surround_generator(
    function: Callable[..., Generator[object, object, object]], begin: BeginRun
) -> Callable[..., object]:
    def run(*args: object, **kwargs: object) -> Generator[object, object, object]:
        block = begin(args, kwargs)
        items: list[object] = []
        with _watch(block):
            inner = function(*args, **kwargs)
            resume = partial(next, inner)
            while True:
                # the scope is set only while the function itself runs, never while its consumer does
                try:
                    with enter_scope(block.scope):
                        item = resume()
                except StopIteration as stop:
                    block.end(items)
                    return stop.value
                items.append(item)
                try:
                    resume = partial(inner.send, (yield item))
                except GeneratorExit:
                    inner.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer: the function must see it
                    resume = partial(inner.throw, error)

    return run


def _surround_async_generator(
    function: Callable[..., AsyncGenerator[object, object]], begin: BeginRun
) -> Callable[..., object]:
    async def run(*args: object, **kwargs: object) -> AsyncGenerator[object, object]:
        block = begin(args, kwargs)
        items: list[object] = []
        with _watch(block):
            inner = function(*args, **kwargs)
            resume = inner.__anext__
            while True:
                try:
                    with enter_scope(block.scope):
                        item = await resume()
                except StopAsyncIteration:
                    block.end(items)
                    return
                items.append(item)
                try:
                    resume = partial(inner.asend, (yield item))
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer: the function must see it
                    resume = partial(inner.athrow, error)

    return run


_SURROUNDINGS: tuple[tuple[Callable[[object], bool], Callable[..., Callable[..., object]]], ...] = (
    (inspect.isasyncgenfunction, _surround_async_generator),
    (inspect.iscoroutinefunction, _surround_coroutine),
    (inspect.isgeneratorfunction, _surround_generator),
)
