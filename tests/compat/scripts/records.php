<?php
// Answers whose end a web server has to notice.
switch ($_GET['way'] ?? '') {
    case 'nothing':
        break;
    case 'header':
        header('X-A: 1');
        break;
    case 'flushed-header':
        header('X-A: 1');
        flush();
        break;
    case 'empty':
        header('Content-Length: 0');
        break;
    case 'equal':
        header('Content-Length: 4');
        echo 'four';
        break;
    case 'more':
        header('Content-Length: 2');
        echo 'four';
        break;
    case 'short':
        header('Content-Length: 100000');
        echo 'four';
        break;
    case 'short-exit':
        header('Content-Length: 100000');
        echo 'four';
        flush();
        exit(2);
    case 'short-die':
        header('Content-Length: 100000');
        echo 'four';
        flush();
        die('text');
    case 'short-fatal':
        header('Content-Length: 100000');
        echo 'four';
        flush();
        undefined_function();
    case 'short-throw':
        header('Content-Length: 100000');
        echo 'four';
        flush();
        throw new Exception('thrown');
    case 'short-memory':
        header('Content-Length: 100000');
        echo 'four';
        flush();
        ini_set('memory_limit', '3M');
        str_repeat('y', 100000000);
        break;
    case 'short-time':
        header('Content-Length: 100000');
        echo 'four';
        flush();
        set_time_limit(1);
        while (true) {
        }
    case 'short-finish':
        header('Content-Length: 100000');
        echo 'four';
        fastcgi_finish_request();
        error_log('after the answer');
        break;
    case 'short-long':
        header('Content-Length: 1000000');
        echo str_repeat('x', 200000);
        break;
    case 'exit':
        exit;
    case 'fatal':
        undefined_function();
    case 'late-shutdown':
        register_shutdown_function(function () {
            echo 'shutdown';
            error_log('shutdown');
        });
        exit('text');
    case 'error-first':
        error_log('first');
        echo 'text';
        break;
    case 'error-only':
        error_log('only');
        break;
    case 'error-between':
        echo 'before';
        flush();
        error_log('between');
        echo 'after';
        break;
    case 'error-last':
        echo 'before';
        flush();
        error_log('last');
        break;
    case 'flush-last':
        echo 'text';
        flush();
        break;
    case 'large':
        echo str_repeat('x', 1 << 20);
        break;
    case 'large-error':
        echo str_repeat('x', 70000);
        error_log('last');
        break;
    case '304':
        http_response_code(304);
        header('Content-Length: 100');
        break;
    case '204':
        http_response_code(204);
        break;
    case 'body':
        header('Content-Length: 10');
        echo file_get_contents('php://input');
        break;
}
