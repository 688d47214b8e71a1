<?php
// The ways a script can end.
register_shutdown_function(function () {
    echo 'shutdown function in ', getcwd() === __DIR__ ? "the script's directory" : 'the directory of before', "\n";
});
class Kept { public function __destruct() { echo "destructor\n"; } }
$kept = new Kept();
ini_set('display_errors', $_GET['display'] ?? '0');
switch ($_GET['way'] ?? '') {
    case 'fatal':
        undefined_function();
        break;
    case 'exception':
        throw new RuntimeException("two\nlines");
    case 'error':
        trigger_error('by hand', E_USER_ERROR);
        break;
    case 'late-fatal':
        echo "some output\n";
        flush();
        undefined_function();
        break;
    case 'exit':
        echo "before\n";
        exit(3);
    case 'exit-text':
        exit("text\n");
    case 'exit-in-buffer':
        ob_start();
        echo 'in buffer ';
        exit;
    case 'warnings':
        error_log('first');
        echo $undefined;
        error_log('third');
        break;
    case 'log-lines':
        error_log("one\ntwo\n");
        error_log('');
        error_log("nul\0byte");
        break;
    case 'log-long':
        error_log(str_repeat('0123456789', 300));
        error_log(str_repeat('x', 1002));
        error_log(str_repeat('y', 1003));
        break;
    case 'memory':
        ini_set('memory_limit', '4M');
        $big = str_repeat('x', 8 << 20);
        break;
    case 'time':
        set_time_limit(1);
        while (true) {
        }
    case 'parse':
        eval('this is no php');
        break;
    case 'compile':
        include __DIR__ . '/broken.inc';
        break;
    case 'destructor-throws':
        $kept = new class { public function __destruct() { throw new Exception('from destructor'); } };
        break;
    case 'buffer-callback':
        ob_start(fn ($text) => strtoupper($text));
        echo "shout\n";
        break;
}
echo "end\n";
