<?php
// One way to set headers for each value of "way".
switch ($_GET['way'] ?? '') {
    case 'code':
        http_response_code((int) $_GET['code']);
        break;
    case 'line':
        header('HTTP/1.1 418 I\'m a teapot');
        break;
    case 'line-only-code':
        header('HTTP/1.0 503');
        break;
    case 'line-long':
        header('HTTP/1.1 500 ' . str_repeat('long ', 400));
        break;
    case 'status':
        header('Status: 404 Gone fishing');
        break;
    case 'status-twice':
        header('Status: 404 One');
        header('Status: 405 Two', false);
        break;
    case 'status-and-line':
        header('HTTP/1.1 403 No');
        header('Status: 402 Pay');
        break;
    case 'status-200':
        header('Status: 200 Fine');
        break;
    case 'location':
        header('Location: /elsewhere');
        break;
    case 'location-201':
        http_response_code(201);
        header('Location: /elsewhere');
        break;
    case 'location-301':
        header('Location: https://example.org/', true, 301);
        break;
    case 'repeated':
        header('X-A: 1');
        header('X-A: 2', false);
        header('x-b: 3');
        header('X-B: 4');
        header('X-C: 5');
        header_remove('X-C');
        break;
    case '304':
        http_response_code(304);
        header('ETag: "x"');
        break;
    case '204':
        http_response_code(204);
        break;
    case 'type':
        header('Content-Type: application/json');
        break;
    case 'type-text':
        header('Content-Type: text/css');
        break;
    case 'type-none':
        header_remove('Content-Type');
        ini_set('default_mimetype', '');
        break;
    case 'cookies':
        setcookie('a', 'b c', ['httponly' => true, 'samesite' => 'Lax', 'path' => '/']);
        setcookie('a2', 'd');
        break;
    case 'authenticate':
        header('WWW-Authenticate: Basic realm="x"');
        break;
    case 'newline':
        header("X-A: 1\r\nX-B: 2");
        break;
    case 'empty':
        header('X-Empty:');
        header('');
        break;
    case 'late':
        echo 'first';
        flush();
        header('X-Late: 1');
        break;
    case 'callback':
        header_register_callback(function () { header('X-Callback: 1'); });
        break;
    case 'length':
        header('Content-Length: 3');
        break;
    case 'remove-all':
        header('X-A: 1');
        header_remove();
        break;
}
echo "body\n";
