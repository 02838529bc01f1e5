// Package junit writes test results as JUnit XML for CI servers.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// Suite holds the results of one test run.
type Suite struct {
	Name       string
	Began      time.Time
	Took       time.Duration
	Properties []Property
	Cases      []Case
}

// Property is a name and a value that describe the run.
type Property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// Case is one test. It passed unless Failure or Skipped is set.
type Case struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Time    float64  `xml:"time,attr"` // seconds
	Failure *Message `xml:"failure,omitempty"`
	Skipped *Message `xml:"skipped,omitempty"`
}

// Message explains why a test failed or was skipped.
type Message struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type element struct {
	XMLName    xml.Name   `xml:"testsuite"`
	Name       string     `xml:"name,attr"`
	Tests      int        `xml:"tests,attr"`
	Failures   int        `xml:"failures,attr"`
	Skipped    int        `xml:"skipped,attr"`
	Errors     int        `xml:"errors,attr"`
	Time       string     `xml:"time,attr"`
	Timestamp  string     `xml:"timestamp,attr"`
	Properties []Property `xml:"properties>property"`
	Cases      []Case     `xml:"testcase"`
}

// Write writes the suite as an XML document.
func (s Suite) Write(w io.Writer) error { return write(w, s.element()) }

// Write writes several suites as one XML document.
func Write(w io.Writer, suites []Suite) error {
	all := struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []element
	}{}
	for _, s := range suites {
		all.Suites = append(all.Suites, s.element())
	}
	return write(w, all)
}

func (s Suite) element() element {
	e := element{
		Name: s.Name, Tests: len(s.Cases), Time: fmt.Sprintf("%.3f", s.Took.Seconds()),
		Timestamp: s.Began.UTC().Format("2006-01-02T15:04:05"), Properties: s.Properties, Cases: s.Cases,
	}
	for _, c := range s.Cases {
		if c.Failure != nil {
			e.Failures++
		}
		if c.Skipped != nil {
			e.Skipped++
		}
	}
	return e
}

func write(w io.Writer, document any) error {
	text, err := xml.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
