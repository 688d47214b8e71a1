<?php
// Every way to a function; of those that are compiled into the script itself, each kind.
function tell(string $way, callable $act): void
{
    try {
        echo "$way: " . json_encode($act()) . "\n";
    } catch (Throwable $error) {
        echo $way, ': ', get_class($error), ': ', $error->getMessage(), "\n";
    }
}

function counted() { return func_num_args() + \count(func_get_args()); }

$text = $_GET['text'] ?? 'abc';
tell('strtoupper', fn () => strtoupper($text));
tell('strlen', fn () => strlen($text));
tell('strlen of a constant', fn () => strlen('abc'));
tell('str_repeat of a constant', fn () => str_repeat('ab', 2));
tell('is_int', fn () => is_int($text));
tell('intval', fn () => intval($text));
tell('chr', fn () => chr(65));
tell('ord', fn () => ord($text));
tell('defined', fn () => defined('PHP_VERSION'));
tell('count', fn () => count([$text]));
tell('in_array', fn () => in_array($text, ['abc', 'def'], true));
tell('array_key_exists', fn () => array_key_exists($text, $_GET));
tell('array_slice', fn () => array_slice([1, 2, 3], 1));
tell('call_user_func', fn () => call_user_func('strtolower', $text));
tell('call_user_func_array', fn () => call_user_func_array('strtolower', [$text]));
tell('func_num_args', fn () => counted(1));
tell('gettype', fn () => gettype($text));
tell('compact', fn () => compact('text'));
tell('by name', fn () => ('str' . 'toupper')($text));
tell('as a callback', fn () => array_map('strtoupper', [$text]));
tell('first class', fn () => strtoupper(...)($text));
tell('reflected', fn () => (new ReflectionFunction('strtoupper'))->invoke($text));
tell('included', fn () => include __DIR__ . '/disabled.inc');
tell('included again', fn () => include __DIR__ . '/disabled.inc');
$names = ['strtoupper', 'strlen', 'is_int', 'in_array', 'exec', 'call_user_func'];
$listed = array_flip(get_defined_functions()['internal']);
foreach ($names as $name) {
    tell("$name exists", fn () => [function_exists($name), is_callable($name), isset($listed[$name])]);
}
tell('exec exists, by a constant', fn () => function_exists('exec'));
tell('strrev exists, by a constant', fn () => function_exists('strrev'));
if (!function_exists('strrev')) {
    function strrev($text) { return "own $text"; }
}
tell('strrev', fn () => strrev($text));
echo ini_get('disable_functions'), "\n";
