"""Imports modules from a table of sources."""

import importlib.abc
import importlib.util
import sys


class Builtin(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def __init__(self, modules):
        self._modules = modules

    def find_spec(self, name, path=None, target=None):
        if name in self._modules:
            return importlib.util.spec_from_loader(name, self, is_package="." not in name)
        return None

    def get_source(self, name):
        return self._modules[name]

    def exec_module(self, module):
        name = module.__spec__.name
        exec(compile(self._modules[name], name.replace(".", "/") + ".py", "exec"), module.__dict__)


def install(modules):
    """Makes these modules importable, once."""
    if "forkyard" not in sys.modules:
        sys.meta_path.insert(0, Builtin(modules))
