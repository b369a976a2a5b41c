"""Search in a library of a made-up world: questions of one to four hops, answered with sources."""
