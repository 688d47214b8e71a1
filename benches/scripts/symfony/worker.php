<?php
require __DIR__ . '/app.php';
$kernel = new Kernel('prod', false);
$handler = function () use ($kernel) {
    $request = Symfony\Component\HttpFoundation\Request::createFromGlobals();
    $response = $kernel->handle($request);
    $response->send();
    $kernel->terminate($request, $response);
};
while (forkyard_handle_request($handler)) {
    gc_collect_cycles();
}
