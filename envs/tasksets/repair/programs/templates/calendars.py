"""Dates without the standard library."""

from random import Random

from envs.tasksets.repair.programs.template import Case, Template, call

_SOURCE = '''\
"""Dates of the Gregorian calendar, as lists of year, month and day."""

LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def is_leap(year):
    """Return whether February has 29 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year, month):
    """Return the number of days in a month."""
    if month < 1 or month > 12:
        raise ValueError("a month is from 1 to 12")
    if month == 2 and is_leap(year):
        return 29
    return LENGTHS[month - 1]


def day_of_year(date):
    """Return the number of a day within its year; 1 January is 1."""
    year, month, day = date
    if day < 1 or day > month_length(year, month):
        raise ValueError("the month has no such day")
    return sum(month_length(year, earlier) for earlier in range(1, month)) + day


def add_days(date, days):
    """Return the date some days later."""
    year, month, day = date
    day += days
    while day > month_length(year, month):
        day -= month_length(year, month)
        month += 1
        if month > 12:
            month = 1
            year += 1
    return [year, month, day]


def days_between(first, second):
    """Return the number of days from one date to another; negative backwards."""
    if second < first:
        return -days_between(second, first)
    total = day_of_year(second) - day_of_year(first)
    for year in range(first[0], second[0]):
        total += 366 if is_leap(year) else 365
    return total


def weekday(date):
    """Return the day of the week; Monday is 0. 3 January 2000 was one."""
    return days_between([2000, 1, 3], date) % 7
'''

_INDEPENDENT = """\
def is_leap(year):
    if year % 400 == 0:
        return True
    if year % 100 == 0:
        return False
    return not year % 4


def month_length(year, month):
    if month not in range(1, 13):
        raise ValueError(month)
    if month == 2:
        return 28 + int(is_leap(year))
    return 30 if month in (4, 6, 9, 11) else 31


def _number(date):
    year, month, day = date
    if not 1 <= day <= month_length(year, month):
        raise ValueError(date)
    before = year - 1
    number = 365 * before + before // 4 - before // 100 + before // 400
    for earlier in range(1, month):
        number += month_length(year, earlier)
    return number + day


def day_of_year(date):
    return _number(date) - _number([date[0], 1, 1]) + 1


def add_days(date, days):
    year, month, day = date
    for _ in range(days):
        day += 1
        if day > month_length(year, month):
            day = 1
            month = month % 12 + 1
            year += month == 1
    return [year, month, day]


def days_between(first, second):
    return _number(second) - _number(first)


def weekday(date):
    return (_number(date) - 1) % 7
"""


def _draw_date(rng: Random) -> list[int]:
    year = rng.choice([1900, 1999, 2000, 2003, 2004, 2023, 2024, 2100, rng.randrange(1890, 2110)])
    month = rng.randrange(1, 13)
    longest = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    return [year, month, rng.choice([1, longest, rng.randrange(1, longest + 1)])]


def _draw(rng: Random) -> Case:
    kind = rng.randrange(7)
    date = _draw_date(rng)
    if kind == 0:
        return [call("is_leap", rng.choice([date[0], rng.randrange(1, 25) * 100]))]
    if kind == 1:
        return [call("month_length", date[0], rng.randrange(0, 14))]
    if kind == 2:
        return [call("day_of_year", [date[0], date[1], date[2] + rng.choice([0, 0, 0, -1, 1])])]
    if kind == 3:
        return [call("add_days", date, rng.choice([0, 1, 31, rng.randrange(0, 800)]))]
    if kind < 6:
        return [call("days_between", date, _draw_date(rng))]
    return [call("weekday", date)]


CALENDARS = Template(
    name="calendars",
    source=_SOURCE,
    independent=_INDEPENDENT,
    names={
        "is_leap": ("is_leap", "has_leap_day", "leap"),
        "month_length": ("month_length", "days_in", "size_of_month"),
        "day_of_year": ("day_of_year", "ordinal", "number_in_year"),
        "add_days": ("add_days", "later", "shift"),
        "days_between": ("days_between", "distance", "difference"),
        "weekday": ("weekday", "day_of_week", "week_position"),
        "earlier": ("earlier", "previous", "passed"),
        "first": ("first", "begin", "since"),
        "second": ("second", "until", "target"),
    },
    draw=_draw,
    edges=[
        [call("is_leap", 1900)],
        [call("is_leap", 2000)],
        [call("is_leap", 2024)],
        [call("is_leap", 2023)],
        [call("month_length", 2024, 2)],
        [call("month_length", 1900, 2)],
        [call("month_length", 2023, 0)],
        [call("month_length", 2023, 1)],
        [call("month_length", 2023, 12)],
        [call("month_length", 2023, 13)],
        [call("day_of_year", [2024, 12, 31])],
        [call("day_of_year", [2023, 3, 1])],
        [call("day_of_year", [2023, 2, 29])],
        [call("day_of_year", [2023, 2, 0])],
        [call("day_of_year", [2023, 1, 1])],
        [call("add_days", [2023, 12, 31], 1)],
        [call("add_days", [2024, 2, 28], 1)],
        [call("add_days", [2023, 1, 31], 0)],
        [call("add_days", [1999, 12, 31], 367)],
        [call("days_between", [2000, 1, 1], [2001, 1, 1])],
        [call("days_between", [2001, 1, 1], [2000, 1, 1])],
        [call("days_between", [2001, 5, 5], [2001, 5, 5])],
        [call("days_between", [2003, 12, 31], [2004, 12, 31])],
        [call("weekday", [2000, 1, 3])],
        [call("weekday", [1999, 12, 31])],
        [call("weekday", [2024, 2, 29])],
    ],
)
