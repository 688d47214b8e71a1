<?php
$end = hrtime(true) + (int) $_GET["ms"] * 1000000;
// A signal can cut a sleep short.
while (($left = $end - hrtime(true)) > 0) {
    usleep(intdiv($left, 1000) + 1);
}
echo "done\n";
