# Follows the table of modules: makes them importable and starts.

import sys

if not getattr(sys.flags, "safe_path", False):
    # Nothing should be imported from the script's own directory.
    sys.path.pop(0)
# multiprocessing runs the file of __main__ in each spawned child; this one would start a preloader.
del __file__

names = {}
exec(compile(MODULES["forkyard.finder"], "forkyard/finder.py", "exec"), names)
names["install"](MODULES)

from forkyard.preload import main

sys.exit(main(sys.argv[1], MODULES))
