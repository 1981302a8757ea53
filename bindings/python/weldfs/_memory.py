"""Python's buffers as pointers and lengths."""

import ctypes


class Bytes:
    """Memory to read from: what `data` (bytes, bytearray, memoryview, array, ...) holds. Kept alive by this object."""

    def __init__(self, data):
        view = memoryview(data)
        if not view.c_contiguous:
            raise ValueError("the buffer is not contiguous")
        self.len = view.nbytes
        if isinstance(data, bytes):
            self._keep = ctypes.c_char_p(data)
            self.pointer = ctypes.cast(self._keep, ctypes.c_void_p)
        elif view.readonly or self.len == 0:
            self._keep = ctypes.c_char_p(view.tobytes())
            self.pointer = ctypes.cast(self._keep, ctypes.c_void_p)
        else:
            self._keep = (ctypes.c_char * self.len).from_buffer(view.cast("B"))
            self.pointer = ctypes.cast(self._keep, ctypes.c_void_p)


class Room:
    """Memory to fill, of Python's own or in a writable buffer."""

    def __init__(self, into):
        if isinstance(into, int):
            if into < 0:
                raise ValueError("a negative length")
            self.len, self._keep = into, ctypes.create_string_buffer(max(into, 1))
        else:
            view = memoryview(into).cast("B")
            self.len = view.nbytes
            self._keep = (ctypes.c_char * self.len).from_buffer(view) if self.len else ctypes.create_string_buffer(1)
        self.pointer = ctypes.cast(self._keep, ctypes.c_void_p)

    def bytes(self, count):
        """The first `count` bytes."""
        return ctypes.string_at(self.pointer, min(count, self.len))
