# Follows the table of modules: makes them importable, and begins.

import sys

if not getattr(sys.flags, "safe_path", False):
    # The script's own directory: nothing is to be imported from there.
    sys.path.pop(0)

import importlib.abc
import importlib.util


class Builtin(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            return importlib.util.spec_from_loader(name, self, is_package="." not in name)
        return None

    def get_source(self, name):
        return MODULES[name]

    def exec_module(self, module):
        name = module.__spec__.name
        exec(compile(MODULES[name], name.replace(".", "/") + ".py", "exec"), module.__dict__)


sys.meta_path.insert(0, Builtin())

from forkyard.preload import main

sys.exit(main(sys.argv[1]))
