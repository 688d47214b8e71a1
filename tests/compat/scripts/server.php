<?php
// Everything that a request brings; only the times differ from run to run.
foreach (['REQUEST_TIME', 'REQUEST_TIME_FLOAT'] as $key) {
    $_SERVER[$key] = gettype($_SERVER[$key]);
    if (isset($_ENV[$key])) {
        $_ENV[$key] = gettype($_ENV[$key]);
    }
}
var_dump($_SERVER, $_GET, $_POST, $_COOKIE, $_FILES, getallheaders(), $_ENV);
var_dump(getenv('HTTP_HOST'), getenv('HTTP_PROXY'), getenv('FCGI_ROLE'), getenv('USER'), getenv('nothing'));
$env = getenv();
foreach ($env as $key => $value) {
    echo "$key=$value\n";
}
var_dump(file_get_contents('php://input'));
