<?php
// What a script that may call any function of the C library gets at, of the processes given: a list, empty if all is well.
$c = FFI::cdef('
    typedef struct { uintptr_t base; size_t length; } piece;
    typedef struct { uint64_t soft, hard; } limit;
    long ptrace(int request, int pid, uintptr_t address, uintptr_t data);
    ssize_t process_vm_readv(int pid, piece *own, unsigned long owns, piece *other, unsigned long others, unsigned long flags);
    ssize_t process_vm_writev(int pid, piece *own, unsigned long owns, piece *other, unsigned long others, unsigned long flags);
    int pidfd_open(int pid, unsigned flags);
    int pidfd_getfd(int pidfd, int fd, unsigned flags);
    int pidfd_send_signal(int pidfd, int signal, void *info, unsigned flags);
    int prlimit(int pid, int resource, limit *set, limit *old);
    int setpriority(int which, unsigned who, int priority);
    int sched_setaffinity(int pid, size_t bytes, uint64_t *mask);
    int sched_setscheduler(int pid, int policy, int *priority);
    int setns(int fd, int type);
    int kill(int pid, int signal);
    int tgkill(int group, int thread, int signal);
    int open(const char *path, int flags);
    int close(int fd);
');
const ATTACH = 16, SEIZE = 0x4206, READ_AND_WRITE = 2, CORE = 4, MOUNTS = 0x20000;

/** Where this process shares memory: all processes of one start of PHP have the same addresses. */
function shared_ranges(): array
{
    preg_match_all('~^([0-9a-f]+)-([0-9a-f]+) ...s .*memfd:forkyard php~m', file_get_contents('/proc/self/maps'), $found, PREG_SET_ORDER);
    return array_map(fn($range) => [$range[1], $range[2]], $found);
}

function attack(FFI $c, int $pid): array
{
    $got = [];
    $ranges = shared_ranges();
    $buffer = FFI::new('char[16]');
    $own = $c->new('piece');
    $own->base = FFI::cast('uintptr_t', FFI::addr($buffer[0]))->cdata;
    $own->length = 16;
    $other = $c->new('piece');
    $other->base = hexdec($ranges[0][0]);
    $other->length = 16;
    [$p, $q] = [FFI::addr($own), FFI::addr($other)];
    if ($c->process_vm_readv($pid, $p, 1, $q, 1, 0) > 0) { $got[] = 'process_vm_readv'; }
    if ($c->process_vm_writev($pid, $p, 1, $q, 1, 0) > 0) { $got[] = 'process_vm_writev'; }
    foreach ([SEIZE, ATTACH] as $request) {
        if ($c->ptrace($request, $pid, 0, 0) === 0) { $got[] = "ptrace $request"; }
    }
    $pidfd = $c->pidfd_open($pid, 0);
    for ($fd = 0; $fd < 64; $fd++) {
        if (($copy = $c->pidfd_getfd($pidfd, $fd, 0)) >= 0) { $got[] = "pidfd_getfd $fd"; $c->close($copy); }
        if (($copy = $c->open("/proc/$pid/fd/$fd", READ_AND_WRITE)) >= 0) { $got[] = "fd/$fd"; $c->close($copy); }
    }
    foreach ($ranges as [$start, $end]) {
        if (($copy = $c->open("/proc/$pid/map_files/$start-$end", READ_AND_WRITE)) >= 0) { $got[] = 'map_files'; $c->close($copy); }
    }
    if ($c->pidfd_send_signal($pidfd, 0, null, 0) === 0) { $got[] = 'pidfd_send_signal'; }
    if ($c->setns($pidfd, MOUNTS) === 0) { $got[] = 'setns'; }
    $c->close($pidfd);
    if ($c->kill($pid, 0) === 0) { $got[] = 'kill'; }
    if ($c->tgkill($pid, $pid, 0) === 0) { $got[] = 'tgkill'; }
    $limit = $c->new('limit');
    if ($c->prlimit($pid, CORE, FFI::addr($limit), null) === 0) { $got[] = 'prlimit'; }
    if ($c->setpriority(0, $pid, 19) === 0) { $got[] = 'setpriority'; }
    $mask = FFI::new('uint64_t');
    $mask->cdata = 1;
    if ($c->sched_setaffinity($pid, 8, FFI::addr($mask)) === 0) { $got[] = 'sched_setaffinity'; }
    $priority = FFI::new('int');
    if ($c->sched_setscheduler($pid, 3, FFI::addr($priority)) === 0) { $got[] = 'sched_setscheduler'; }
    $private = ['environ', 'mem', 'maps', 'smaps', 'stack', 'syscall', 'auxv', 'pagemap', 'io', 'personality'];
    foreach ($private as $name) {
        $file = @fopen("/proc/$pid/$name", 'r');
        if ($file && ($name === 'mem' || @fread($file, 16) !== false)) { $got[] = $name; }
    }
    foreach (['mem', 'comm', 'oom_score_adj', 'autogroup', 'clear_refs', 'coredump_filter', 'uid_map'] as $name) {
        if (@fopen("/proc/$pid/$name", 'r+')) { $got[] = "$name for writing"; }
    }
    // Anybody may open it, and few may write.
    if (@file_put_contents("/proc/$pid/timerslack_ns", '50000')) { $got[] = 'timerslack_ns'; }
    foreach (['fd', 'fdinfo', 'map_files', "task/$pid/fd", 'ns'] as $name) {
        foreach (@scandir("/proc/$pid/$name") ?: [] as $entry) {
            if ($entry[0] !== '.' && ($name !== 'ns' || @readlink("/proc/$pid/ns/$entry"))) { $got[] = "$name/$entry"; }
        }
    }
    foreach (['exe', 'cwd', 'root'] as $name) {
        if (@readlink("/proc/$pid/$name")) { $got[] = $name; }
    }
    return $got;
}

$got = [];
foreach (explode(',', $_GET['pids'] ?? '') as $pid) {
    foreach (attack($c, (int) $pid) as $what) { $got[] = "$what of $pid"; }
}
foreach ([0, 65533, (int) $_GET['other']] as $uid) {
    if (@posix_setuid($uid) || @posix_seteuid($uid) || @posix_setgid($uid) || @posix_setegid($uid)) { $got[] = "becomes $uid"; }
}
foreach (array_keys(opcache_get_status()['scripts']) as $script) {
    if (str_contains($script, 'secret')) { $got[] = "cached $script"; }
}
// The same against a process of its own shows that all of this can succeed.
$child = proc_open(['/bin/sleep', '60'], [], $pipes);
do {
    $own = proc_get_status($child)['pid'];
} while (!str_contains((string) @readlink("/proc/$own/exe"), 'sleep') && !str_contains((string) @readlink("/proc/$own/exe"), 'coreutils'));
$control = attack($c, $own);
proc_terminate($child, 9);
echo json_encode(['got' => $got, 'control' => $control]);
