<?php
echo function_exists('preloaded') ? preloaded() : 'nothing';
