<?php
// Ways to hurt a worker.
while (ob_get_level() > 0) {
    ob_end_flush();
}
echo 'begin';
flush();
function endless($n) { return [endless($n + 1)]; }
class Endless { public function __toString(): string { return 'x' . $this; } }
switch ($_GET['way'] ?? '') {
    case 'segv':
        posix_kill(getmypid(), 11);
        break;
    case 'kill':
        posix_kill(getmypid(), 9);
        break;
    case 'recursion':
        echo (string) new Endless();
        break;
    case 'memory':
        ini_set('memory_limit', '16M');
        $list = [];
        while (true) {
            $list[] = str_repeat('x', 1 << 20);
        }
    case 'loop':
        set_time_limit(1);
        while (true) {
        }
    case 'exit-process':
        posix_kill(getmypid(), 15);
        break;
}
echo 'end';
