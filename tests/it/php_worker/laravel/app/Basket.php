<?php
namespace App;

class Basket
{
    public array $items = [];
}
