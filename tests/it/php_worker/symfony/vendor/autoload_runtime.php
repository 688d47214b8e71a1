<?php
// What Symfony's Runtime component has Composer write, for classes of Debian's packages.
if (true === (require_once __DIR__ . '/autoload.php') || empty($_SERVER['SCRIPT_FILENAME'])) {
    return;
}
$app = require $_SERVER['SCRIPT_FILENAME'];
$runtime = $_SERVER['APP_RUNTIME'] ?? $_ENV['APP_RUNTIME'] ?? 'Symfony\Component\Runtime\SymfonyRuntime';
$runtime = new $runtime(['disable_dotenv' => true]);
[$app, $args] = $runtime->getResolver($app)->resolve();
$app = $app(...$args);
exit($runtime->getRunner($app)->run());
