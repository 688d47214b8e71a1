<?php
require_once '/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php';
require_once '/usr/share/php/Symfony/Component/Runtime/autoload.php';
require_once __DIR__ . '/../Kernel.php';
require_once __DIR__ . '/../Runtime.php';
