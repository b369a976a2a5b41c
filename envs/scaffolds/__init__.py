"""Scaffolds: what 'agent-layer new env | taskset | scorer' writes, each a module that runs and passes its gate."""
