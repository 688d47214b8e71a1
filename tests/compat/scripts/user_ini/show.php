<?php
foreach (['memory_limit', 'precision', 'html_errors', 'post_max_size', 'user_agent'] as $name) {
    var_dump(ini_get($name));
}
