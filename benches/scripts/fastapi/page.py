"""An application on FastAPI: a page that waits, as for a database, one that does not, and one that computes for about 50 ms."""

import asyncio

from fastapi import FastAPI

app = FastAPI()


@app.get("/")
async def page():
    return {"hello": "world"}


@app.get("/wait")
async def wait():
    await asyncio.sleep(0.05)
    return {"hello": "world"}


@app.get("/compute")
def compute():
    return {"sum": sum(number * number for number in range(1_000_000))}
