"""An application on FastAPI: a page that waits, as for a database, and one that does not."""

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
