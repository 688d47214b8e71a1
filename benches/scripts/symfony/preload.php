<?php
// For opcache.preload: what pages need, by answering them.
require __DIR__ . '/app.php';
$kernel = new Kernel('prod', false);
foreach (['/', '/form'] as $path) {
    $request = Symfony\Component\HttpFoundation\Request::create($path);
    $kernel->terminate($request, $kernel->handle($request));
}
