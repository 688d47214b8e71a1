<?php
// Output of many kinds.
switch ($_GET['way'] ?? '') {
    case 'large':
        echo str_repeat('0123456789abcdef', 65536 * 2);
        break;
    case 'pieces':
        for ($i = 0; $i < 20000; $i++) {
            echo "line $i of many\n";
        }
        break;
    case 'flush':
        for ($i = 0; $i < 5; $i++) {
            echo $i;
            flush();
        }
        break;
    case 'nested':
        ob_start();
        echo 'a';
        ob_start();
        echo 'b';
        $b = ob_get_clean();
        echo strtoupper($b), ob_get_level();
        ob_end_flush();
        break;
    case 'stream':
        $out = fopen('php://output', 'w');
        fwrite($out, "through a stream\n");
        readfile(__FILE__);
        break;
    case 'nothing':
        break;
    case 'binary':
        for ($i = 0; $i < 256; $i++) {
            echo chr($i);
        }
        break;
    case 'flush-first':
        flush();
        header('X-After-Flush: 1');
        echo 'x';
        break;
    case 'compressed':
        ini_set('zlib.output_compression', '1');
        echo str_repeat('compress me ', 100);
        break;
}
