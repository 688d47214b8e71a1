# Follows the table of modules: makes them importable, and begins.

import sys

if not getattr(sys.flags, "safe_path", False):
    # The script's own directory: nothing is to be imported from there.
    sys.path.pop(0)
# multiprocessing runs the file of __main__ in each child that it spawns. This one starts preloaders.
del __file__

names = {}
exec(compile(MODULES["forkyard.finder"], "forkyard/finder.py", "exec"), names)
names["install"](MODULES)

from forkyard.preload import main

sys.exit(main(sys.argv[1], MODULES))
