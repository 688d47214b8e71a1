<?php
// About a millisecond of work: as little as a page takes that does anything.
$sum = 0;
for ($i = 0; $i < 25000; $i++) {
    $sum += crc32((string) $i) % 7;
}
echo $sum, "\n";
