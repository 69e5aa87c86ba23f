"""A server of FTP (pyftpdlib) for one folder: writes each command to a log, and can cut data connections.

Arguments: port, folder, log, login (user:password or nothing), PEM file for TLS or nothing, cuts, bytes before each.
"""

import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import DTPHandler, FTPHandler
from pyftpdlib.servers import FTPServer

port, folder, log, login, pem, cuts, most = sys.argv[1:]
left = int(cuts)
authorizer = DummyAuthorizer()
if login:
    authorizer.add_user(*login.split(":"), folder)
else:
    authorizer.add_anonymous(folder)
base, data = FTPHandler, DTPHandler
if pem:
    from pyftpdlib.handlers import TLS_DTPHandler, TLS_FTPHandler

    base, data = TLS_FTPHandler, TLS_DTPHandler


class Data(data):
    def send(self, chunk):
        global left
        sent = super().send(chunk)
        if left > 0 and self.get_transmitted_bytes() + sent > int(most):
            left -= 1
            self.close()
        return sent


class Handler(base):
    dtp_handler = Data

    def pre_process_command(self, line, command, argument):
        with open(log, "a") as file:
            print(command, argument, file=file)
        super().pre_process_command(line, command, argument)


Handler.authorizer = authorizer
if pem:
    Handler.certfile = pem
    Handler.tls_control_required = Handler.tls_data_required = True
FTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
