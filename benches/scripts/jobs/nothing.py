def nothing(number):
    pass
