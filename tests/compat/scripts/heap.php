<?php
// Proof that malloc(3) gives bytes that are not zero, and that PHP takes its memory from there.
$libc = FFI::cdef('void *malloc(size_t);');
echo bin2hex(FFI::string($libc->malloc(1 << 20), 4)), ' ', memory_get_usage(), "\n";
