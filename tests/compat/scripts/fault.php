<?php
// Ways to hurt a worker.
echo 'begin';
flush();
function endless($n) { return [endless($n + 1)]; }
class Endless { public function __toString(): string { return 'x' . $this; } }
switch ($_GET['way'] ?? '') {
    case 'segv':
        posix_kill(getpid(), SIGSEGV);
        break;
    case 'kill':
        posix_kill(getpid(), SIGKILL);
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
        posix_kill(getpid(), SIGTERM);
        break;
}
echo 'end';
