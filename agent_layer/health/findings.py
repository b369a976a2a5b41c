"""What a check found: the record that reports of steps, the file of alarms and the API share."""

from typing import Literal, TypeAlias

from agent_layer.schema import Record
from agent_layer.times import format_minute

FindingView: TypeAlias = Literal["trajectories", "failures", "learning", "update", "fleet"]
"""Views of the page where a finding can be seen."""


class HealthFinding(Record, frozen=True, kw_only=True):
    """Something that is wrong with a run, by the catalogue."""

    name: str
    """Entry of the catalogue."""
    title: str = ""
    """What is wrong, in the words of a headline; empty: the report is older than this field."""
    level: Literal["warn", "stop"]
    """``stop``: the run ends for it."""
    value: float | None
    """None: not finite."""
    limit: float
    """Threshold that the value is beyond."""
    since_step: int | None = None
    """First step that it was found in; with a window of several steps, the first of the window. None: found now, and
    not in a step."""
    sentence: str
    """What was measured, with its numbers."""
    advice: str
    """What it means, and what to do."""
    subject: str | None = None
    """What it is about: the address of an engine, a task, what tasks need of a worker; None: the run as a whole."""
    since: float | None = None
    """When it began, in seconds since the epoch: the end of step ``since_step``, or of this moment; None: not known."""
    view: FindingView | None = None
    """View of the page where it can be seen; None: the report is older than this field."""
    filters: dict[str, str] = {}
    """Filters for trajectories that show it, as the command line names them; the run is understood."""

    def __str__(self) -> str:
        """Return the finding as one line."""
        return f"{self.headline}. {self.advice}"

    @property
    def headline(self) -> str:
        """The finding without its advice, by its name in the catalogue."""
        of_what = "" if self.subject is None else f" of {self.subject}"
        return f"{self.name}{of_what}{self._began}: {self.sentence}"

    @property
    def title_line(self) -> str:
        """The finding without its advice, by its title."""
        what = self.title or self.name.replace("_", " ").capitalize()
        of_what = "" if self.subject is None else f" ({self.subject})"
        began = f",{self._began}" if self._began else ""
        return f"{what}{of_what}{began}. {self.sentence[:1].upper()}{self.sentence[1:]}"

    @property
    def _began(self) -> str:
        if self.since_step is not None:
            return f" since step {self.since_step}"
        return "" if self.since is None else f" since {format_minute(self.since)}"
