"""The `zmq` transport: front end and engine core in processes of their own."""
