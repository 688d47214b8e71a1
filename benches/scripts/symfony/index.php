<?php
// It is there where opcache.preload has loaded it.
class_exists('Kernel', false) || require __DIR__ . '/app.php';
$kernel = new Kernel('prod', false);
$request = Symfony\Component\HttpFoundation\Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
