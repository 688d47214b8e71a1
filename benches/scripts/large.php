<?php
// A page of 1 MB, made row by row.
$row = '<tr>' . str_repeat('<td>0123456789</td>', 53) . "</tr>\n";
for ($i = 0; $i < 1024; $i++) {
    echo $row;
}
