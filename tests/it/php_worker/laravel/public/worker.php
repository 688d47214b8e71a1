<?php
// A worker script by Laravel Octane's contract: the application boots once, each request has a clone of it, and what keeps hold of
// the application it was made with is told of the clone.

use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) {
    echo 'This script is for worker mode.';
    exit(1);
}
ignore_user_abort(true);
// As bin/bootstrap.php of Octane, which knows the application by nothing else.
$base = $_SERVER['APP_BASE_PATH'] ?? $_ENV['APP_BASE_PATH'] ?? null;
if (!is_string($base) || !is_dir($_SERVER['APP_PUBLIC_PATH'] ?? '') || !isset($_SERVER['LARAVEL_OCTANE'])) {
    echo 'Cannot find application base path.';
    exit(11);
}
require "$base/autoload.php";

$application = require "$base/bootstrap/app.php";
$application->instance('request', Request::create('http://localhost'));
$kernel = $application->make(Kernel::class);
$kernel->bootstrap();
foreach (['config', 'cookie', 'router', 'session', 'url', 'view'] as $service) {
    $application->make($service);
}

function make_current($application): void
{
    $application->instance('app', $application);
    $application->instance(Container::class, $application);
    Container::setInstance($application);
    Facade::clearResolvedInstances();
    Facade::setFacadeApplication($application);
}

$handler = static function () use ($application, $kernel): void {
    $sandbox = clone $application;
    make_current($sandbox);
    $sandbox->instance('config', clone $application['config']);
    $kernel->setApplication($sandbox);
    $sandbox['router']->setContainer($sandbox);
    $sandbox['view']->setContainer($sandbox);
    $sandbox['view']->share('app', $sandbox);
    $sandbox['session']->setContainer($sandbox);
    $sandbox['session']->forgetDrivers();
    $sandbox->forgetInstance('session.store');
    $sandbox['cookie']->flushQueuedCookies();
    $sandbox->forgetScopedInstances();
    try {
        $request = Request::capture();
        $sandbox->instance('request', $request);
        $sandbox['url']->setRequest($request);
        $response = $kernel->handle($request);
        $response->send();
        $kernel->terminate($request, $response);
    } catch (Throwable $error) {
        $sandbox->make(ExceptionHandler::class)->report($error);
        http_response_code(500);
        echo 'Internal Server Error';
    } finally {
        $sandbox->flush();
        make_current($application);
        $kernel->setApplication($application);
    }
};
$most = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'] ?? 1000;
for ($count = 0; $count < $most && frankenphp_handle_request($handler); $count++) {
    gc_collect_cycles();
}
$kernel->terminate($application['request'], response(''));
