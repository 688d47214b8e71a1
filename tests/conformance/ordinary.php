<?php
require __DIR__ . '/handler.php';
handle_request();
