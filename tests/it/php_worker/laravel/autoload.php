<?php
// In place of Composer's: the framework of Debian's package, and the application.
require_once '/usr/share/php/Illuminate/autoload.php';
spl_autoload_register(function (string $class) {
    foreach (['Illuminate\\Foundation\\' => '/usr/share/php/Illuminate/Foundation', 'App\\' => __DIR__ . '/app'] as $prefix => $directory) {
        $file = $directory . '/' . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
        }
    }
});
require_once '/usr/share/php/Illuminate/Foundation/helpers.php';
