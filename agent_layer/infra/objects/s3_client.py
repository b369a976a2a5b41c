"""S3 clients; no other file makes one."""

from typing import Protocol, cast

from agent_layer.settings import Settings


class Body(Protocol):
    """Content of an S3 object, not read yet."""

    def read(self) -> bytes:
        """Read all of it."""
        ...


class S3Client(Protocol):
    """The part of boto3 that we use; boto3 has no types. Arguments are spelled as in S3."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> dict[str, str]:  # noqa: N803
        """Store an object; it is there as a whole or not at all."""
        ...

    def get_object(self, *, Bucket: str, Key: str, Range: str = ...) -> dict[str, Body]:  # noqa: N803
        """Read an object, or a range of its bytes."""
        ...

    def delete_object(self, *, Bucket: str, Key: str) -> object:  # noqa: N803
        """Remove an object; one that is not there is no error."""
        ...

    def list_objects_v2(self, *, Bucket: str, Prefix: str, ContinuationToken: str = ...) -> dict[str, object]:  # noqa: N803
        """List one page of keys in order."""
        ...


def open_s3(settings: Settings) -> S3Client:
    """Make a client that tries once, with the credentials that boto3 finds now. It sends no request yet."""
    import boto3  # noqa: PLC0415  # takes 0.2 s, and only S3 needs it
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        connect_timeout=settings.connect_seconds,
        read_timeout=settings.retry_seconds / 2,  # so that a caller that tries for retry_seconds tries twice
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=32,
    )
    make = cast("_MakeClient", boto3.Session().client)  # pyright: ignore[reportUnknownMemberType]  # boto3 is untyped
    return make("s3", endpoint_url=settings.s3_endpoint_url, config=config)


class _MakeClient(Protocol):
    def __call__(self, service: str, *, endpoint_url: str | None, config: object) -> S3Client: ...
