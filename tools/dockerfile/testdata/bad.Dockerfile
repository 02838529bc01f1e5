# Breaks each rule that is checked, some of them more than once.
FROM debian as Build
MAINTAINER nobody
ENV VERSION 1
ENV API_TOKEN=secret
RUN apt-get install $NOWHERE
Workdir relative

FROM debian:latest
WORKDIR $UNDEFINED/x
CMD one
CMD ["two"]
