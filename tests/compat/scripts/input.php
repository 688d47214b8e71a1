<?php
// What was sent, without repeating all of it.
foreach ($_FILES as &$file) {
    foreach ((array) $file['tmp_name'] as $i => $path) {
        if ($path !== '') {
            echo is_uploaded_file($path) ? 'uploaded ' : 'not uploaded ', md5_file($path), ' ', filesize($path), "\n";
        }
    }
    $file['tmp_name'] = is_array($file['tmp_name']) ? count($file['tmp_name']) : gettype($file['tmp_name']);
}
unset($file);
var_dump($_POST, $_FILES);
$input = file_get_contents('php://input');
var_dump(strlen($input), md5($input));
var_dump(memory_get_peak_usage(true) < (8 << 20));
