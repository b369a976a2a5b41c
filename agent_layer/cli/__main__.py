"""``agent-layer`` and ``python -m agent_layer.cli``. The module imports little: Ctrl-C is answered from here on."""

from agent_layer.cli.interrupts import end_at_interrupt, ending_at_interrupt


def main() -> None:
    """Load the command line and run it."""
    with ending_at_interrupt():
        from agent_layer.cli.main import main as run_command  # noqa: PLC0415  # takes a quarter of a second
    try:
        run_command()
    finally:
        end_at_interrupt()


if __name__ == "__main__":
    main()
