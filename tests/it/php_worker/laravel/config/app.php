<?php
return [
    'name' => 'tests', 'env' => 'production', 'debug' => false, 'url' => 'http://localhost', 'timezone' => 'UTC', 'locale' => 'en',
    'fallback_locale' => 'en', 'key' => 'base64:' . base64_encode(str_repeat('k', 32)), 'cipher' => 'AES-256-CBC',
    'providers' => [
        Illuminate\Foundation\Providers\FoundationServiceProvider::class, Illuminate\Cookie\CookieServiceProvider::class,
        Illuminate\Encryption\EncryptionServiceProvider::class, Illuminate\Filesystem\FilesystemServiceProvider::class,
        Illuminate\Session\SessionServiceProvider::class, Illuminate\Translation\TranslationServiceProvider::class, Illuminate\View\ViewServiceProvider::class, App\Routes::class,
    ],
    'aliases' => [],
];
