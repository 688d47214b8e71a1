<?php
// Writes a text into the last page of all memory that is shared with other processes, machine code as well; says where.
$c = FFI::cdef('
    int mprotect(uintptr_t address, size_t length, int protection);
    void *memcpy(uintptr_t to, const char *from, size_t bytes);
');
$places = [];
foreach (file('/proc/self/maps') as $line) {
    if (preg_match('~^([0-9a-f]+)-([0-9a-f]+) (...)s .*memfd:forkyard php~', $line, $found)) {
        $page = hexdec($found[2]) - 4096;
        if ($c->mprotect($page, 4096, str_contains($found[3], 'x') ? 7 : 3) !== 0) { exit('mprotect'); }
        // The JIT has something at the end of its own.
        $c->memcpy($page + 1024, $_GET['text'], strlen($_GET['text']));
        $places[] = $page + 1024;
    }
}
echo json_encode($places);
