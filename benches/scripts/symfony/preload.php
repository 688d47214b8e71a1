<?php
// For opcache.preload: what a page needs, by answering one.
require __DIR__ . '/app.php';
$kernel = new Kernel('prod', false);
$request = Symfony\Component\HttpFoundation\Request::create('/');
$kernel->terminate($request, $kernel->handle($request));
