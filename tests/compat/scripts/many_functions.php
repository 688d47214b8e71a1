<?php
// More than the tables have room for, so that they grow.
for ($i = 0; $i < 5000; $i++) {
    eval("function own_function_$i() {} const OWN_CONSTANT_$i = $i;");
}
echo function_exists('own_function_4999') ? 'all' : 'not all', ' ', OWN_CONSTANT_4999, "\n";
