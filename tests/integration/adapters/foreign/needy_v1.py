"""A task set of verifiers that needs a package that is not there."""

import no_such_package_for_tests
import verifiers.v1 as vf

__all__ = ["no_such_package_for_tests", "vf"]
