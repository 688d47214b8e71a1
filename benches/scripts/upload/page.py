"""Takes a file by a form, as FastAPI documents it, and says how large it was."""

from fastapi import FastAPI, UploadFile

app = FastAPI()


@app.get("/")
async def page():
    return {"size": 0}


@app.post("/")
async def upload(file: UploadFile):
    return {"size": file.size}
