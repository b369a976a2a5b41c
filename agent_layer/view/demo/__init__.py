"""A recorded run that ships with the package, for a look at the page before anything is trained."""
