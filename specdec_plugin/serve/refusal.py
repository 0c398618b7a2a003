"""What a client is told when a request cannot be answered."""


class RefusalError(Exception):
    """A request that is not answered, and why.

    Attributes:
        status: of HTTP.
        sentence: the cause and the cure, for a person.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
