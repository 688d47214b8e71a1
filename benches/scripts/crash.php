<?php
posix_kill(posix_getpid(), 11);
sleep(5);
