<?php
echo var_export(opcache_get_status(false)['jit']['on'], true), "\n";
